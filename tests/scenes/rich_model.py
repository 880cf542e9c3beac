"""A model with something of nearly every kind that MuJoCo knows."""

from __future__ import annotations

import copy
from functools import cache

import mujoco
import numpy as np

XML = """
<mujoco>
  <option timestep="0.004" density="1.2" viscosity="0.01" wind="0.1 0 0" integrator="discrete"/>
  <size nuserdata="3" nuser_body="1" nuser_jnt="1" nuser_geom="1" nuser_site="1" nuser_cam="1"
      nuser_tendon="1" nuser_actuator="1" nuser_sensor="1"/>
  <asset>
    <texture name="checks" type="2d" builtin="checker" width="160" height="160"/>
    <material name="grey" texture="checks"/>
    <hfield name="ground" nrow="140" ncol="140" size="4 4 0.05 0.1"/>
    <mesh name="wedge" vertex="0 0 0  .3 0 0  0 .3 0  0 0 .3  .3 .3 .1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="above" pos="0 0 4"/>
    <geom name="ground" type="hfield" hfield="ground" material="grey"/>
    <geom name="belt" type="box" size=".5 .5 .02" pos="1.5 0 .05" surfacevel="0.1 0 0 0 0 0"/>
    <body name="target" mocap="true" pos="0 1.5 1">
    <geom type="sphere" size=".05" contype="0" conaffinity="0"/>
    </body>
    <body name="trunk" pos="0 0 .34">
      <freejoint name="root"/>
      <geom name="trunk" type="capsule" size=".08 .2" mass="2" euler="0 80 0"
          fluidshape="ellipsoid"/>
      <site name="eye" pos="0 0 .1" euler="180 0 0"/>
      <site name="hook" pos="0 .1 .1"/>
      <camera name="onboard" pos="0 0 .2" resolution="16 16"/>
      <body name="thigh" pos=".25 0 0">
        <joint name="hip" axis="0 1 0" actuatorfrcrange="-.5 .5" range="5 60" damping=".1"
            stiffness="1" armature=".01"
            frictionloss=".01" springref="10"/>
        <geom name="thigh" type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/>
        <body name="shin" pos=".2 0 -.1">
          <joint name="knee" axis="0 1 0" range="-90 90" damping=".1"/>
          <geom name="shin" type="capsule" fromto="0 0 0 0 0 -.2" size=".03"/>
          <site name="foot" pos="0 0 -.2"/>
        </body>
      </body>
    </body>
    <body name="wedge" pos="-1 0 .03">
    <freejoint/>
    <geom name="wedge" type="mesh" mesh="wedge" density="300"/>
    </body>
    <body name="crate" pos="1.5 0 .165">
    <freejoint/>
    <geom name="crate" type="box" size=".1 .1 .1" mass="1"/>
    <site name="crate" pos="0 0 .1"/>
    </body>
    <body name="ball" pos="1.5 .05 .45">
    <joint type="ball" name="swing" pos="0 0 .2" damping=".05"/>
    <geom name="ball" size=".08" mass=".5"/>
    </body>
    <body name="slider" pos="0 -1.5 .5">
    <joint name="slide" type="slide" axis="0 0 1" range="-.3 .3"/>
    <geom name="slider" size=".1" mass="1"/>
    </body>
    <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" pos="-1.5 1 .06"
        radius=".02" dim="2" mass=".2">
      <contact selfcollide="none"/>
      <elasticity young="1000" poisson=".2" damping=".001" thickness=".01" elastic2d="both"/>
    </flexcomp>
  </worldbody>
  <contact>
    <pair geom1="crate" geom2="belt" friction=".8 .8 .01 .001 .001"/>
    <exclude body1="trunk" body2="shin"/>
  </contact>
  <equality>
    <connect name="anchor" body1="ball" anchor="0 0 .15" active="true"/>
    <weld name="tie" body1="slider" body2="target" active="false"/>
    <joint name="couple" joint1="hip" joint2="knee" polycoef="0 .5 0 0 0" solref=".1 1"/>
  </equality>
  <tendon>
    <spatial name="rope" stiffness="2" damping=".1" limited="true" range="0 1" springlength=".5"
        armature=".01" frictionloss=".001">
    <site site="hook"/>
    <site site="crate"/>
    </spatial>
    <fixed name="mix" actuatorfrcrange="-.2 .2">
      <joint joint="hip" coef=".5"/><joint joint="knee" coef="-.3"/>
    </fixed>
  </tendon>
  <actuator>
    <position name="hip" joint="hip" kp="5" kv=".1" ctrlrange="-1 1" forcerange="-3 3"/>
    <muscle name="knee" joint="knee" ctrlrange="0 1" lengthrange="-1 1"/>
    <motor name="mix" tendon="mix" gear="2" ctrlrange="-1 1" delay="0.008" nsample="4"/>
    <general name="slide" joint="slide" dyntype="integrator" gainprm="2" biastype="affine"
        biasprm="0 -2 -.1" actlimited="true" actrange="-1 1" ctrlrange="-1 1"/>
  </actuator>
  <sensor>
    <rangefinder site="eye"/>
    <touch site="foot"/>
    <accelerometer site="eye"/>
    <gyro site="eye"/>
    <magnetometer site="eye"/>
    <framepos objtype="body" objname="crate"/>
    <subtreecom body="trunk"/>
    <tendonpos tendon="rope"/>
    <actuatorfrc actuator="hip"/>
    <jointlimitfrc joint="hip"/>
    <camprojection site="crate" camera="above"/>
    <clock/>
    <user dim="1"/>
    <e_kinetic/>
    <e_potential/>
    <distance geom1="crate" geom2="ball" cutoff="2"/>
  </sensor>
  <custom>
  <numeric name="n" data="1 2 3"/>
  <text name="t" data="words"/>
  <tuple name="u">
  <element objtype="body" objname="crate" prm="1"/>
  </tuple>
  </custom>
  <keyframe><key name="start" time="0"/></keyframe>
</mujoco>"""


@cache
def _compiled(integrator: str) -> mujoco.MjModel:
    model = mujoco.MjModel.from_xml_string(XML.replace("discrete", integrator))
    model.hfield_data[:] = np.random.default_rng(0).uniform(0, 1, model.nhfielddata)
    return model


def rich_model(integrator: str = "discrete") -> mujoco.MjModel:
    """Return a new model: bodies on rough ground, a cloth, tendons, muscles, sensors and more.

    Args:
        integrator: One more, "Euler", may have a cloth with stiff edges.
    """
    return copy.copy(_compiled(integrator))
